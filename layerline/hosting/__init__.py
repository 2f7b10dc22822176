"""What the programs that serve have in common: their `ports`, their `adverts` on the network, their `end_signals`."""
