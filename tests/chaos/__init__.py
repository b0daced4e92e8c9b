"""Kill, tear, fill and race `blend` at random, and see that it keeps its promises each time."""
