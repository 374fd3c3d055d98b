"""Send an audited folder to the Hub (`push`), and post a report in a review (`comment`).

huggingface_hub makes all requests that write; `hub_writing` turns its errors into one line.
"""
