from __future__ import annotations

import torch
from agentfly.backends.native.logprobs import score_tokens


def scores(max_logits: int, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 5, generator=generator, requires_grad=True)
    head = torch.nn.Linear(5, 11, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(11, 5, generator=generator))
    targets = torch.tensor([0, 1, 2, 3, 10, 5, 6])
    result = score_tokens(hidden, targets, head, vocab_size=11, temperature=temperature, max_logits=max_logits)
    (result.logprobs * torch.arange(1.0, 8.0)).sum().backward()
    assert hidden.grad is not None
    assert head.weight.grad is not None
    return result.logprobs.detach(), result.entropies, hidden.grad, head.weight.grad


def test_they_are_those_of_log_softmax_at_the_temperature() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 5, generator=generator)
    weight = torch.randn(11, 5, generator=generator)
    expected = (hidden @ weight.T / 0.7).log_softmax(-1)
    logprobs, entropies, _, _ = scores(1000, temperature=0.7)
    torch.testing.assert_close(logprobs, expected.gather(-1, torch.tensor([0, 1, 2, 3, 10, 5, 6])[:, None])[:, 0])
    torch.testing.assert_close(entropies, -(expected.exp() * expected).sum(-1))


def test_slices_change_neither_values_nor_gradients() -> None:
    for whole, sliced in zip(scores(1000), scores(22), strict=True):
        torch.testing.assert_close(whole, sliced)


def test_entropies_carry_no_gradient() -> None:
    assert not scores(1000)[1].requires_grad
    assert not scores(22)[1].requires_grad
