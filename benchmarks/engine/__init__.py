"""What `make bench` runs: blend beside vLLM's own ways of running a batch, on a real vLLM."""
