"""The house rules of a team, as gotchas of attn-guard."""
