"""The report as people read it: page, figures, Markdown, terminal, all from one ``Report``."""
