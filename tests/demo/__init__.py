"""`make demo`: real prompts from all over the world through a real Envoy to six stand-in pods, and what that shows."""
