"""Plans of language models that a runtime can follow, and the choices that they are made of."""
