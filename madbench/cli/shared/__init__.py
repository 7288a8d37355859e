"""Options, completion, printing and training that several verbs share."""
