"""Prompts: a draft becomes the token ids that the model will see."""
