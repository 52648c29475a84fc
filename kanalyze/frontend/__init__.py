"""From a TARGET to subjects: what is to be analysed, compiled where it has to be."""
