"""What was decided, in sentences with numbers for the person who reads it: of a stage, of a plan, of a refusal.

Decides nothing. Every reason is one that the decision carries.
"""
