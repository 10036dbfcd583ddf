"""A byte-level BPE vocabulary of a published size with the published special tokens, without the published words.

Merges are pairs of letters in the order of English letter frequencies, then pairs with a letter, then pairs
of pairs: every token is the sum of two earlier ones, as real merges are, and every byte has its token. What
random weights say is then letters, and text becomes two to four letters a token.
"""

import itertools
import math

FREQUENT = "etaoinshrdlucmfwypvbgkjxqz"
GPT2_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = GPT2_LETTERS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {  # GGUF's name -> what tokenizer.json says
    "qwen2": QWEN2,
    "qwen35": QWEN2.replace(r"\p{L}+|\p{N}|", r"[\p{L}\p{M}]+|\p{N}|").replace(r"[^\s\p{L}\p{N}]+[", r"[^\s\p{L}\p{M}\p{N}]+["),
    "llama-bpe": QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|"),
    "pixtral": TEKKEN,
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
PATTERNS["smollm"] = PATTERNS["gpt-2"]

CHATML = """\
{%- macro text(message) %}{{ message.content if message.content is string else '' }}{% endmacro %}
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- text(messages[0]) + '\\n\\n' }}{% endif %}
{{- 'Functions you may call, one JSON object a line:\\n<tools>\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{% endfor %}
{{- '</tools>\\nTo call one, write <tool_call>, <function=NAME>, for each argument <parameter=KEY>, its value and ' }}
{{- '</parameter>, then </function> and </tool_call>, each on a line of its own.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + text(messages[0]) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + text(message) + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + text(message) }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for key, value in call.function.arguments | items %}
{{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + text(message) + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}THINK{% endif %}
"""
PLAIN = CHATML.replace("THINK", "")
THINKING = "{{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '<think>\\n' }}"
NEMOTRON_THINKING = "{{- '<think></think>' if enable_thinking is defined and not enable_thinking else '<think>\\n' }}"
LLAMA3 = """\
{{- '<|begin_of_text|>' }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""
GEMMA = """\
{{- '<bos>' }}
{%- for message in messages %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
{{- message.content + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}
"""

QWEN_VISION = ["<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
               "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_TEXT = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
             "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
QWEN_CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SHOWN = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}  # special is false


def numbered(first, names):
    return {name: first + i for i, name in enumerate(names)}


def nemotron_specials():
    known = {0: "<unk>", 1: "<s>", 2: "</s>", 10: "<|im_start|>", 11: "<|im_end|>", 12: "<think>", 13: "</think>",
             14: "<tool_call>", 15: "</tool_call>", 16: "<tool_response>", 17: "</tool_response>"}
    return {known.get(i, f"<SPECIAL_{i}>"): i for i in range(1000)}


def llama3_specials():
    known = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 6: "<|start_header_id|>", 7: "<|end_header_id|>", 8: "<|eom_id|>",
             9: "<|eot_id|>", 10: "<|python_tag|>"}
    return {known.get(i, f"<|reserved_special_token_{i}|>"): 128000 + i for i in range(256)}


# name -> pre (GGUF), special tokens, names of end and beginning (or none), is the beginning added, template
VOCABULARIES = {
    "qwen35": ("qwen35", numbered(248044, QWEN_CHAT + QWEN_VISION + QWEN_TEXT + ["<|audio_start|>", "<|audio_end|>"]),
               "<|im_end|>", None, CHATML.replace("THINK", THINKING)),
    "qwen3": ("qwen2", numbered(151643, QWEN_CHAT + QWEN_VISION + QWEN_TEXT), "<|im_end|>", None, PLAIN),
    "qwen2": ("qwen2", numbered(151643, QWEN_CHAT + QWEN_VISION + QWEN_TEXT[:8]), "<|im_end|>", None, PLAIN),
    "nemotron": ("pixtral", nemotron_specials(), "<|im_end|>", None, CHATML.replace("THINK", NEMOTRON_THINKING)),
    "smollm": ("smollm", numbered(0, QWEN_CHAT), "<|im_end|>", None, PLAIN),
    "llama3": ("llama-bpe", llama3_specials(), "<|eot_id|>", "<|begin_of_text|>", LLAMA3),
    "gemma": ("gpt-2", {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "<start_of_turn>": 105, "<end_of_turn>": 106},
              "<end_of_turn>", "<bos>", GEMMA),
}


def byte_alphabet():
    """The character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def merges(count):
    """The first `count` pairs (left, right)."""
    cost = {c: math.log(2 + i) for i, c in enumerate(FREQUENT)}
    by_cost = sorted(itertools.product(FREQUENT, repeat=2), key=lambda p: (cost[p[0]] + cost[p[1]], p))
    space = byte_alphabet()[32]
    result = [(space, c) for c in FREQUENT] + by_cost
    pairs = [a + b for a, b in by_cost]
    result += [(space + c, pair) for pair in pairs for c in FREQUENT]  # a space, then three letters
    result += [(pair, c) for pair in pairs for c in FREQUENT]
    for total in range(2 * len(pairs) - 1):  # diagonals: the two ranks sum to `total`
        if len(result) >= count:
            break
        result += [(pairs[i], pairs[total - i]) for i in range(max(0, total - len(pairs) + 1), min(total, len(pairs) - 1) + 1)]
    if len(result) < count:
        raise ValueError(f"{count} merges are more than there are")
    return result[:count]


class Tokenizer:
    def __init__(self, vocabulary, size):
        self.size = size
        self.pre, self.specials, self.end, self.begin, self.template = VOCABULARIES[vocabulary]
        taken = set(self.specials.values())
        if max(taken) >= size:
            raise ValueError(f"the special tokens of {vocabulary} need more than {size} ids")
        # Ordinary tokens fill the ids below the last special one, or all of them where those come first.
        free = [i for i in range(size if max(taken) < size // 2 else max(taken)) if i not in taken]
        self.merges = merges(len(free) - 256)
        words = [*byte_alphabet().values(), *(a + b for a, b in self.merges)]
        self.ids = dict(zip(words, free))

    def id_of(self, name):
        return self.specials[name]

    def end_ids(self):
        return [self.specials[n] for n in (self.end, "<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>") if n in self.specials]

    def add_to_gguf(self, writer):
        import gguf

        words = [f"[PAD{i}]" for i in range(self.size)]
        types = [int(gguf.TokenType.UNUSED)] * self.size
        for word, i in self.ids.items():
            words[i], types[i] = word, int(gguf.TokenType.NORMAL)
        for word, i in self.specials.items():
            words[i] = word
            types[i] = int(gguf.TokenType.USER_DEFINED if word in SHOWN else gguf.TokenType.CONTROL)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(words)
        writer.add_token_types(types)
        writer.add_token_merges([f"{a} {b}" for a, b in self.merges])
        writer.add_eos_token_id(self.id_of(self.end))
        writer.add_bos_token_id(self.id_of(self.begin or self.end))
        writer.add_add_bos_token(self.begin is not None)
        writer.add_chat_template(self.template)

    def tokenizer_json(self):
        def added(word, i):
            return {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                    "special": word not in SHOWN}

        steps = [{"type": "Split", "pattern": {"Regex": PATTERNS[self.pre]}, "behavior": "Isolated", "invert": False},
                 {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]
        if self.pre == "smollm":
            steps.insert(0, {"type": "Digits", "individual_digits": True})
        begin = None
        if self.begin:
            ends = {"id": self.begin, "ids": [self.id_of(self.begin)], "tokens": [self.begin]}
            begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": self.begin, "type_id": 0}},
                                                              {"Sequence": {"id": "A", "type_id": 0}}],
                     "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                     "special_tokens": {self.begin: ends}}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": sorted((added(w, i) for w, i in self.specials.items()), key=lambda t: t["id"]),
            "normalizer": {"type": "NFC"} if self.pre.startswith("qwen") else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "post_processor": begin,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": self.pre in ("llama-bpe", "pixtral"), "vocab": self.ids,
                      "merges": [[a, b] for a, b in self.merges]},
        }

    def tokenizer_config(self):
        return {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": self.end, "bos_token": self.begin,
                "add_bos_token": self.begin is not None, "clean_up_tokenization_spaces": False, "chat_template": self.template}
