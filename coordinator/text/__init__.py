"""Tokens and text: the tokenizer, text as it streams, stop strings, chat templates."""
