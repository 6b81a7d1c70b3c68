"""Asks a running samebit server through the official Python clients of OpenAI and Anthropic.

    python3 -m venv /tmp/pyclients && /tmp/pyclients/bin/pip install openai anthropic
    samebit serve smollm2-135m --port 8080 &
    /tmp/pyclients/bin/python reference/clients/conformance.py http://127.0.0.1:8080

Every check compares what a client sees whole and streamed. Ends with exit code 0 if all of them hold.
"""

import sys

import anthropic
import openai

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
QUESTION = [{"role": "user", "content": "Name three colours."}]
OPTIONS = {"max_tokens": 24, "temperature": 0.7, "seed": 11}

failures = []


def check(name, holds, detail=""):
    print(("ok   " if holds else "FAIL ") + name + ("" if holds else f": {detail}"))
    if not holds:
        failures.append(name)


def openai_checks():
    client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
    models = client.models.list().data
    check("models", bool(models) and bool(models[0].plan_id))
    model = models[0].id
    check("models by id", client.models.retrieve(model).id == model)

    whole = client.chat.completions.create(model=model, messages=QUESTION, **OPTIONS)
    text = whole.choices[0].message.content
    check("chat", bool(text) and whole.usage.completion_tokens > 0)
    pieces, last, usage = "", None, None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, stream_options=options, **OPTIONS
    ):
        if chunk.choices:
            pieces += chunk.choices[0].delta.content or ""
            last = chunk
        usage = chunk.usage or usage
    check("chat, streamed", pieces == text, (pieces, text))
    check("chain", last.samebit["chain"] == whole.samebit["chain"])
    check("usage, streamed", usage.completion_tokens == whole.usage.completion_tokens)
    check("cached tokens", usage.prompt_tokens_details.cached_tokens >= 0)

    told = client.chat.completions.create(
        model=model, messages=QUESTION, logprobs=True, top_logprobs=2, **OPTIONS
    )
    check("logprobs", len(told.choices[0].logprobs.content) == told.usage.completion_tokens)
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "maxLength": 12}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    shaped = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=60, response_format=form
    )
    check("json schema", shaped.choices[0].message.content.startswith("{"), shaped.choices[0].message.content)
    several = client.chat.completions.create(model=model, messages=QUESTION, n=2, **OPTIONS)
    check("n", len(several.choices) == 2 and several.choices[0].message.content == text)

    raw = client.completions.create(model=model, prompt="The sky is", max_tokens=8, temperature=0)
    pieces = "".join(
        chunk.choices[0].text
        for chunk in client.completions.create(
            model=model, prompt="The sky is", max_tokens=8, temperature=0, stream=True
        )
    )
    check("completions", pieces == raw.choices[0].text, (pieces, raw.choices[0].text))

    response = client.responses.create(model=model, input="Name a colour.", max_output_tokens=12, temperature=0)
    check("responses", bool(response.output_text))
    check("responses, kept", client.responses.retrieve(response.id).output_text == response.output_text)
    with client.responses.stream(model=model, input="Name a colour.", max_output_tokens=12, temperature=0) as stream:
        kinds = [event.type for event in stream]
    check("responses, streamed", kinds[0] == "response.created", kinds)
    deltas = "".join(
        event.delta
        for event in client.responses.create(
            model=model, input="Name a colour.", max_output_tokens=12, temperature=0, stream=True
        )
        if event.type == "response.output_text.delta"
    )
    check("responses, deltas", deltas == response.output_text, deltas)
    follow = client.responses.create(
        model=model, input="Another?", previous_response_id=response.id, max_output_tokens=8
    )
    check("responses, continued", follow.previous_response_id == response.id)
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
        check("responses, deleted", False)
    except openai.NotFoundError:
        check("responses, deleted", True)

    try:
        client.chat.completions.create(model=model, messages=QUESTION, max_tokens=10**6)
        check("context", False)
    except openai.BadRequestError as error:
        check("context", error.code == "context_length_exceeded", error.body)
    try:
        client.chat.completions.create(model="another", messages=QUESTION)
        check("another model", False)
    except openai.NotFoundError as error:
        check("another model", error.code == "model_not_found")
    return model


def anthropic_checks(model):
    client = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
    options = {"model": model, "max_tokens": 24, "messages": QUESTION, "system": "Be brief."}
    whole = client.messages.create(**options)
    text = whole.content[0].text
    check("messages", bool(text) and whole.stop_reason in ("end_turn", "max_tokens"))
    with client.messages.stream(**options) as stream:
        pieces = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("messages, streamed", pieces == text and final.content[0].text == text, (pieces, text))
    check("messages, usage", final.usage.output_tokens == whole.usage.output_tokens)
    del options["max_tokens"]
    count = client.messages.count_tokens(**options)
    prompt = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    check("messages, counted", count.input_tokens == prompt, count)
    try:
        client.messages.create(model=model, max_tokens=20_000, messages=QUESTION)
        check("messages, context", False)
    except anthropic.BadRequestError as error:
        check("messages, context", error.body["error"]["type"] == "invalid_request_error")


anthropic_checks(openai_checks())
print(f"{len(failures)} failed" if failures else "all hold")
sys.exit(bool(failures))
