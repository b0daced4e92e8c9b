"""What has to be said beside a figure: written by hand, by the name of its section."""

SYSTEMS_IN_WORDS = {
    "vllm-dfs": "depth-first order, operators one after another",
    "sglang": (
        "SGLang's longest prefix match, which is the file's order while more than 128 requests "
        "wait, operators one after another"
    ),
    "nanoflow-dfs": "depth-first order, operators overlap",
    "nanoflow-balance": "random order, operators overlap",
    "memory-first": "depth-first order with the memory-bound classes first, operators overlap",
    "paper": "the paper's policy as we build it from its text: split, sort, dual scan; overlap",
    "blend": (
        "our policy: length distributions by class, forecast of the cache, paced prefill; overlap"
    ),
    "auto": "six of these orders and variants simulated at plan time, the fastest kept; overlap",
}

# No figures here: they would outlive the run that they came from.
REMARKS = {
    "summary": (
        "**What is reproduced.** On every trace, in the mean over the seeds, blending beats a "
        "depth-first order, a random order and operators one after another; it keeps the sharing "
        "of a depth-first order; and a small sample is about as good as all lengths.\n\n"
        "**What is not.** The size of the gains. The paper's own policy gains less over "
        "NanoFlow-DFS here than published: somewhat less on the four traces, and next to nothing "
        "in the smaller workloads of the grid. Its partition says how much memory each side may "
        "hold, and not how much prefill a step may do. Answers of MMLU have two tokens, so the "
        "compute side turns its part over every few steps; at the full budget of each step it is "
        "through while the long answers, which grow by one token a step, are still young and read "
        "little. That the budget of a step decides it, the section on step budgets shows: with "
        "steps of the right size the paper's policy gains as much here as published. Whether its "
        "runs had such steps we cannot tell: its lengths, the order of its depth-first baseline "
        "and the budget of its steps are not published, and our policy may differ from theirs "
        "where the text leaves a choice. On traces 3 and 4 a random "
        "order is a better baseline here than a depth-first one, and comes near the paper's "
        "policy, with one seed before it.\n\n"
        "`blend` gains more than the paper publishes, for it paces the prefill. Part of that is "
        "the baseline: our depth-first order takes the compute side first and the long answers "
        "last, and so overlaps hardly anything; `memory-first` shows what the other way round "
        "does. And part of it, in the grid above all, is the sample: there it holds a good part of "
        "the few long answers, run to their end, which alone would take most of a run. So the "
        "grid says what `blend` does with lengths it knows. What a warm-up as in `blend run` "
        "leaves of it stands beside it in Fig. 11, and under *What is known of the lengths*."
    ),
    "lengths": (
        "`most` is what sharing in whole blocks leaves of the optimum, which counts every shared "
        "token: no order can come to more, whatever it knows. A warm-up comes near to a sample "
        "that costs nothing: it is itself a run of the plan of one who has seen no answer, so that "
        "long answers begin at once, beside prompts at a pace that lets them grow, and after its "
        "bound a few have ended and the others are thousands of tokens old. The small workloads "
        "end with a few long answers, whichever these are; there each that is begun late counts."
    ),
    "table-2": (
        "Figures at the smaller size depend on a few draws: a few dozen requests are its whole "
        "memory side, and reading the weights for the longest answer alone takes most of the "
        "practical optimum. What is within reach there the bound says."
    ),
    "fig-9": (
        "A random order loses more on traces 3 and 4 than on 1 and 2, where it keeps more than the "
        "paper says: there the prefixes of MMLU's 57 subjects return often enough to stay in the "
        "cache while the long answers leave room for them."
    ),
    "fig-11": (
        "Read the figures of `blend` with what its sample would take: they are no end-to-end "
        "gains. Not reproduced: neither the size of the gain of the paper's policy nor its "
        "growth with density. The paper's policy, like a depth-first order, spends the compute "
        "side at full speed while the long answers are young, and then waits for those alone. In "
        "its weaker cells `blend` too waits at the end, for answers that outlast what its sample "
        "foretold."
    ),
    "fig-12": (
        "Llama-2-7B has no grouped queries: its cache of a token is four times as large, so every "
        "workload is bound by memory and less is left to blend."
    ),
    "budget": (
        "This is the paper's gain, and why it is not found with larger steps. A step of about 512 "
        "tokens holds the compute side back by itself: it lasts until the long answers have grown "
        "old, and the partition of the memory, which says nothing about prefill, needs no pace "
        "beside it. Smaller steps gain less again: the long answers end, and the compute side goes "
        "on alone; and below some 150 tokens a step takes as long as reading the weights, whatever "
        "it computes. `blend` sets the pace itself, and so asks for no such choice."
    ),
    "split": (
        "No threshold matters on these workloads: a 1 % sample shows a handful of outliers, which "
        "each of these thresholds lets go, and they hardly weigh."
    ),
    "pacing": (
        "A step budget and the gate come near the bound on every trace, and small steps too where "
        "a step costs nothing of its own. What a small job lacks under the gate is the first "
        "pieces: prompts are computed a quarter at a time. Larger jobs lose about two per cent "
        "under both. About half of that no order can have: the cache shares whole blocks of 16 "
        "tokens, and the bound counts every shared token. The rest is lost at the end, when the "
        "compute side is spent and the last long answers run on alone. Where W is unknown the pace "
        "follows the steps "
        "that the memory side still needs, of which the last few long answers are a poor "
        "witness: taken to be fewer, the compute side is spent early, taken to be more, it waits. "
        "No order gains more over the file's than the last column says, for reading the weights "
        "and the cache takes most of the time of so small a job."
    ),
    "sampling": (
        "Comparable here too, and the paper's policy is not even faster with all lengths known: "
        "what it lacks is not knowledge of them. But the sample is not free: run alone to its end, "
        "as the last column has it, its long answers take a noticeable part of the run. `blend "
        "plan` therefore cuts it off after `--sample-seconds`; of the long answers it then knows "
        "how old they grew and not how long they are, and those it dropped run again. In `blend "
        "run` they go on; what is then left of the figures stands under *What is known of the "
        "lengths*. The figures of the paper's policy are on the bright side."
    ),
}
