"""What leaves this machine after an audit: a folder (`push`), a report in a review (`comment`).

huggingface_hub makes all requests that write; `hub_writing` turns its errors into one line.
"""
