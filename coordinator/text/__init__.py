"""Between text and token ids: chat templates, the tokenizer, and answers that are written as they are certain."""
