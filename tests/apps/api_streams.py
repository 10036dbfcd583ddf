"""Streams of /v1/responses and /v1/messages: parsed, checked against the rules of their APIs, and
put together again. For the tests beside this file."""

import json


def parse(raw):
    """[(event, data), ...]; pings of either kind are left out."""
    events = []
    text = raw.decode()
    assert text.endswith("\n\n"), text[-80:]
    for block in text[:-2].split("\n\n"):
        lines = block.split("\n")
        if lines == [": ping"]:
            continue
        assert len(lines) == 2, block
        assert lines[0].startswith("event: ") and lines[1].startswith("data: "), block
        name, data = lines[0][7:], json.loads(lines[1][6:])
        assert data["type"] == name, block
        if name != "ping":
            events.append((name, data))
    return events


def response_of(events):
    """The final response, built from the events alone, and as the last event has it."""
    numbers = [data["sequence_number"] for _, data in events]
    assert numbers == list(range(len(events))), numbers
    assert [name for name, _ in events[:2]] == ["response.created", "response.in_progress"]
    for _, data in events[:2]:
        assert data["response"]["status"] == "in_progress"
        assert data["response"]["output"] == [] and data["response"]["usage"] is None
    items, part = [], None
    for name, data in events[2:-1]:
        kind = name.removeprefix("response.")
        if kind == "output_item.added":
            assert data["output_index"] == len(items)
            item = data["item"]
            assert item["status"] == "in_progress"
            items.append(item)
            continue
        item = items[data["output_index"]]
        assert data["output_index"] == len(items) - 1, "items overlap"
        if kind == "output_item.done":
            final = data["item"]
            assert final["id"] == item["id"] and final["status"] != "in_progress"
            for key, value in item.items():
                if key != "status":
                    assert final[key] == value, (key, final[key], value)
            items[-1] = final
            continue
        assert data["item_id"] == item["id"]
        if kind == "content_part.added":
            part = data["part"]
            assert data["content_index"] == len(item["content"])
            item["content"].append(part)
        elif kind == "content_part.done":
            assert data["part"] == part
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            assert data["delta"]
            part["text"] += data["delta"]
            if kind == "output_text.delta":
                part["logprobs"] += data["logprobs"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert data["text"] == part["text"]
        elif kind in ("function_call_arguments.delta", "custom_tool_call_input.delta"):
            key = "arguments" if kind.startswith("function") else "input"
            item[key] += data["delta"]
        elif kind == "function_call_arguments.done":
            assert (data["name"], data["arguments"]) == (item["name"], item["arguments"])
        elif kind == "custom_tool_call_input.done":
            assert data["input"] == item["input"]
        else:
            raise AssertionError(name)
    name, last = events[-1]
    assert name == "response." + last["response"]["status"], name
    if name != "response.failed":
        assert last["response"]["output"] == items
    return last["response"]


def message_of(events):
    """The final message, built from the events alone."""
    assert events[0][0] == "message_start", events[0]
    message = events[0][1]["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    assert message["usage"]["output_tokens"] == 0
    assert [name for name, _ in events[-2:]] == ["message_delta", "message_stop"]
    assert events[-1][1] == {"type": "message_stop"}
    blocks, open_index, json_text = message["content"], None, ""
    for name, data in events[1:-2]:
        if name == "content_block_start":
            assert open_index is None and data["index"] == len(blocks)
            open_index, json_text, signatures = data["index"], "", 0
            blocks.append(data["content_block"])
            continue
        assert data["index"] == open_index
        block = blocks[open_index]
        if name == "content_block_stop":
            assert signatures == (1 if block["type"] == "thinking" else 0)
            if block["type"] == "tool_use":
                assert block["input"] == {}
                try:
                    block["input"] = json.loads(json_text)
                except ValueError:
                    block["input"] = json_text
            open_index = None
            continue
        assert name == "content_block_delta" and not signatures, name
        delta = data["delta"]
        if delta["type"] == "text_delta":
            block["text"] += delta["text"]
        elif delta["type"] == "thinking_delta":
            block["thinking"] += delta["thinking"]
        elif delta["type"] == "signature_delta":
            assert delta["signature"] == ""
            signatures += 1
        elif delta["type"] == "input_json_delta":
            json_text += delta["partial_json"]
        else:
            raise AssertionError(delta)
    assert open_index is None
    last = events[-2][1]
    message.update(last["delta"])
    message["usage"].update(last["usage"])
    message.update({key: last[key] for key in ("timings", "invar")})
    return message
