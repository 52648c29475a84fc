"""PTX: from text to IR, control flow, and back to text; the table of instructions."""
