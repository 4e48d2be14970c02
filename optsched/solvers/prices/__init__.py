"""The price method: prices of resources, and the cheapest way of every job to a level."""
