"""How models write what is not plain text: thoughts before an answer, and calls to tools. Read as it comes.

An `AnswerForm` (`form.py`) is picked by a model's chat template: the markers round its thoughts, and the format of its
calls, one small file for each. An `AnswerReader` (`reader.py`) takes text as it becomes certain and gives parts: text,
thoughts, and calls whose arguments come as JSON. Formats are read by generators over a `Feed` (`feed.py`), which wait
where the text so far does not say enough; what turns out to be no call is text again, so that nothing is lost.
"""
