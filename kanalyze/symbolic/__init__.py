"""What registers hold, as expressions: SSA, loops, execution predicates, PTX and SASS."""
