"""Indexes of other papers, beside which ours are measured."""
