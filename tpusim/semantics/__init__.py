"""What an instruction means: shapes, rules, groups, scalars, trips. Pure questions that several verbs ask."""
