"""What has to be said beside a figure: written by hand, by the name of its section."""

REMARKS = {
    "table-2": (
        "With these means 192 to 358 of 400,000 requests, and 19 to 36 of 40,000, make the memory "
        "side. At 400,000 the longest answer alone takes a tenth of the practical optimum to read "
        "the weights for; at 40,000 it takes 0.6 to 0.9 of it, and more than all of it in two of "
        "the 65 cells. So figures at 40,000 depend on a few draws, and not all of the practical "
        "optimum is within reach there; the bound says what is."
    ),
    "fig-9": (
        "The prefixes of all 57 subjects of MMLU take 40,000 tokens, under a tenth of the cache on "
        "one device: as long as the cache does not fill, a random order finds nearly all of them."
    ),
}
