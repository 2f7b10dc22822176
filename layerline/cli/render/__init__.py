"""Reports as text: sentences, tables, the stats screen and JSON objects. Pure: nouns in, text out."""
