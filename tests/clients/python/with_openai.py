import openai

from scenarios import run, step

QUESTION = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Say it."}]}


def _client(url, retries, timeout):
    return openai.OpenAI(api_key="sk-1", base_url=f"{url}/v1", max_retries=retries, timeout=timeout / 1000)


def _error(error):
    return {
        "error": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "message": str(error),
    }


def _keyed(key):
    return {"Idempotency-Key": key}


def complete(url, retries, timeout, key):
    completions = _client(url, retries, timeout).chat.completions
    try:
        answer = completions.with_raw_response.create(**QUESTION, extra_headers=_keyed(key))
    except openai.OpenAIError as error:
        return _error(error)
    text = answer.parse().choices[0].message.content
    return {"text": text, "replayed": answer.headers.get("idempotent-replayed")}


def stream(url, retries, timeout, key):
    """A step for every chunk, as it comes."""
    completions = _client(url, retries, timeout).chat.completions
    said = []
    try:
        for chunk in completions.create(**QUESTION, stream=True, extra_headers=_keyed(key)):
            said.append(chunk.choices[0].delta.content)
            step(said[-1])
    except Exception as error:  # Which one it is, is what the test asks for.
        return {"said": said, **_error(error)}
    return {"said": said}


run(complete, stream)
