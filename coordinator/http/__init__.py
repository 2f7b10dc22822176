"""What the coordinator offers over HTTP: the APIs of OpenAI and Anthropic, metrics, and a page to look at.

A request comes through the `Guard` (`guard.py`: host, origin, key, size) to a route. A route reads the body into a
pydantic model that takes nothing it does not know (`bodies.py`), makes a `GenerateRequest` of it, and writes what the
`Coordinator` answers in the API's form: whole, or as server-sent events (`event_stream.py`). Whatever fails becomes a
status and a body in one place (`failures.py`). Each API is one module, or two; `app.py` puts them together and
`server.py` gives them a socket. Nothing here decides anything about a model: that is the façade's.
"""
