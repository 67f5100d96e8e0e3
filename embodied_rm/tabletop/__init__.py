"""Commands and helpers that run policies, experts and evaluations in the tabletop simulator."""
