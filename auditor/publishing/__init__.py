"""The publication of a model and of its audit: `push`, `comment`, and signed statements.

`push` sends an audited folder to the Hub, and `comment` posts a report in a review; huggingface_hub
makes all requests that write, and `hub_writing` turns its errors into one line. `statement` states
an audit, `signature` signs it and checks signatures, `verification` compares it with the model.
"""
