"""How predictions become rewards: the rules of the field, one file of pure functions each, named as in their papers."""
