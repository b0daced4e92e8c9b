"""The paper's evaluation on our simulator: `make paper` writes docs/results/paper.md."""
