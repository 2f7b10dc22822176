"""What the programs that serve have in common: `ports`, `adverts` on the network, `end_signals`, and the
`child` processes that they start."""
