"""The machine: an LLM server whose latency follows from batch, context and prefill."""
