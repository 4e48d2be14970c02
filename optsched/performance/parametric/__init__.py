"""Models with a closed form: laws of a step's time whose coefficients are fitted to profiles."""
