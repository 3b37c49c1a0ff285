"""transformers: a tiny Llama is trained for two steps and generates."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

DISTRIBUTION = "transformers"


def run() -> list[float]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 64, (2, 16))
    losses = []
    for _ in range(2):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    made = model.generate(tokens[:, :4], max_new_tokens=4, do_sample=False, pad_token_id=0)
    return [*losses, float(made.sum())]
