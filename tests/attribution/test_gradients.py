import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from evenhand.attribution import gradients as gradients_module
from evenhand.attribution.feed_forward import RELU, FeedForward, feed_forward
from evenhand.attribution.gradients import attribute, integrated_gradients
from evenhand.exceptions import InvalidInputError, InvalidTypeError

seeds = st.integers(0, 2**32 - 1)


def network(d=5, hidden=(16, 8), seed=0, activation=nn.ReLU):
    torch.manual_seed(seed)
    layers, width = [], d
    for h in hidden:
        layers += [nn.Linear(width, h), activation(), nn.Dropout(0.5)]
        width = h
    return nn.Sequential(*layers, nn.Linear(width, 1)).double()


def draw(seed, n=6, d=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, n, d, dtype=torch.float64, generator=generator)


class Residual(nn.Module):
    """Not a chain of layers."""

    def __init__(self, d=5):
        super().__init__()
        self.inner, self.out = nn.Linear(d, d), nn.Linear(d, 1)

    def forward(self, x):
        return self.out(x + torch.tanh(self.inner(x))).squeeze(-1)


def captum(model, x, baseline, n_steps, method="riemann_middle"):
    model.eval()
    return IntegratedGradients(lambda z: model(z).reshape(len(z))).attribute(
        x, baseline, n_steps=n_steps, method=method
    )


@pytest.mark.parametrize("hidden", [(), (12,), (16, 8), (10, 8, 6)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU, nn.LeakyReLU])
def test_midpoint_equals_captum(hidden, activation):
    model = network(hidden=hidden, activation=activation)
    x, b = draw(1)
    ours = integrated_gradients(model, x, b, n_steps=32, method="midpoint")
    # captum keeps its step sizes in float32
    torch.testing.assert_close(ours, captum(model, x, b, 32), rtol=1e-5, atol=1e-7)


def test_a_module_that_is_no_chain_of_layers_equals_captum():
    torch.manual_seed(0)
    model = Residual().double()
    x, b = draw(2)
    found = attribute(model, x, b, n_steps=40, method="segments")
    assert found.method == "midpoint"
    torch.testing.assert_close(found.values, captum(model, x, b, 40), rtol=1e-5, atol=1e-7)


@given(seeds, st.sampled_from([1, 2, 4, 7]), st.sampled_from([(12,), (16, 8), (10, 8, 6)]))
def test_segments_are_complete_for_any_number_of_them(seed, n_steps, hidden):
    x, b = draw(seed)
    for activation in (nn.ReLU, nn.LeakyReLU):
        found = attribute(network(hidden=hidden, seed=seed % 1000, activation=activation), x, b, n_steps, "segments")
        assert found.completeness_gap.max() < 1e-12 * (1 + found.values.abs().sum())


@given(seeds, st.sampled_from([nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus]))
def test_segments_of_a_smooth_network_are_complete(seed, activation):
    x, b = draw(seed)
    found = attribute(network(seed=seed % 1000, activation=activation), x, b, 3, "segments")
    assert found.completeness_gap.max() < 1e-6  # the derivative stands in for the secant on tiny steps


@given(seeds, st.sampled_from([(12,), (16, 8), (10, 8, 6), (6, 5, 4, 3)]))
def test_exact_is_the_limit_of_many_segments_and_complete(seed, hidden):
    model = network(hidden=hidden, seed=seed % 1000)
    x, b = draw(seed, n=3)
    exact = attribute(model, x, b, method="exact")
    many = integrated_gradients(model, x, b, n_steps=4096, method="segments").detach()
    assert exact.completeness_gap.max() < 1e-12 * (1 + exact.values.abs().sum())
    torch.testing.assert_close(exact.values, many, atol=2e-4 * float(many.abs().max()), rtol=0)


def test_exact_matches_the_closed_form_of_two_units_in_a_row():
    # f(x) = relu(relu(2x - 1) - 1) from 0 to 2: the inner unit is on after 1/4 of the path, the outer after 1/2.
    net = FeedForward(
        weights=(torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.tensor([[1.0]])),
        biases=(torch.tensor([-1.0]), torch.tensor([-1.0]), torch.tensor([0.0])),
        activations=(RELU, RELU),
    )
    found = attribute(net, torch.tensor([[2.0]]), torch.tensor([[0.0]]), method="exact")
    assert found.gradients.item() == pytest.approx(0.5 * 2.0)
    assert found.values.item() == pytest.approx(2.0)


@given(seeds, seeds)
def test_a_linear_model_gives_weight_times_offset_whatever_the_method(seed, model_seed):
    model = network(hidden=(), seed=model_seed % 1000)
    x, b = draw(seed)
    expected = (x - b) * model[0].weight
    for method in ("segments", "midpoint", "exact"):
        torch.testing.assert_close(integrated_gradients(model, x, b, 3, method), expected)


@given(seeds)
def test_the_baseline_cancels_in_raw_attributions_of_a_linear_model(seed):
    model = network(hidden=())
    x, match = draw(seed)
    b = draw(seed + 1)[0]
    difference = integrated_gradients(model, x, b) - integrated_gradients(model, match, b)
    torch.testing.assert_close(difference, (x - match) * model[0].weight)


def test_midpoint_on_relu_approaches_completeness_with_steps():
    model, (x, b) = network(hidden=(32, 16)), draw(3, n=200)
    gaps = [attribute(model, x, b, n, "midpoint").completeness_gap.mean() for n in (2, 8, 32, 128)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2] > 8 * gaps[3] > 0


def test_more_segments_are_closer_to_exact():
    model, (x, b) = network(hidden=(32, 16)), draw(3, n=200)
    exact = integrated_gradients(model, x, b, method="exact")
    errors = [(integrated_gradients(model, x, b, n) - exact).norm() for n in (1, 4, 16, 64)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 8 * errors[3]


def test_four_segments_are_closer_to_exact_than_sixteen_midpoints():
    model, (x, b) = network(hidden=(32, 16)), draw(3, n=200)
    exact = integrated_gradients(model, x, b, method="exact")
    segments = integrated_gradients(model, x, b, 4, "segments")
    midpoint = integrated_gradients(model, x, b, 16, "midpoint")
    assert (segments - exact).norm() < (midpoint - exact).norm()


@pytest.mark.parametrize("method", ["segments", "midpoint", "exact"])
def test_chunks_do_not_change_the_result(method, monkeypatch):
    model, (x, b) = network(), draw(4, n=50)
    whole = integrated_gradients(model, x, b, 4, method)
    monkeypatch.setattr(gradients_module, "_CHUNK_VALUES", {"cpu": 1000})
    torch.testing.assert_close(integrated_gradients(model, x, b, 4, method), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("hidden", [(12,), (16, 8), (10, 8, 6)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Tanh])
def test_memory_that_is_used_again_changes_nothing(hidden, activation, monkeypatch):
    model = network(hidden=hidden, activation=activation)
    x, b = draw(3, n=50)
    with_graph = attribute(model, x, b, 4)
    monkeypatch.setattr(gradients_module, "_CACHE_VALUES", 7 * 5 * (sum(hidden) + 1))  # blocks of seven and a last one
    with torch.no_grad():
        found = attribute(model, x, b, 4)
    for name in ("gradients", "logit", "baseline_logit"):
        torch.testing.assert_close(getattr(found, name), getattr(with_graph, name).detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.logit, model.eval()(x).detach().squeeze(-1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_a_bit(n_threads, monkeypatch):
    model = network(d=20, hidden=(32, 16)).float()
    x, b = (part.float() for part in draw(4, n=5000, d=20))
    monkeypatch.setattr(gradients_module, "_CACHE_VALUES", 64 * 5 * 49)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            torch.set_num_threads(1)
            alone = attribute(model, x, b, 4)
            torch.set_num_threads(n_threads)
            shared = attribute(model, x, b, 4)
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone.gradients, shared.gradients)
    assert torch.equal(alone.logit, shared.logit)


def test_chunks_do_not_change_the_general_path(monkeypatch):
    model, (x, b) = Residual().double(), draw(4, n=50)
    whole = integrated_gradients(model, x, b, 4)
    monkeypatch.setattr(gradients_module, "_CHUNK_VALUES", {"cpu": 1000})
    torch.testing.assert_close(integrated_gradients(model, x, b, 4), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", ["segments", "midpoint", "exact"])
def test_a_stack_of_networks_equals_each_alone(method):
    nets = [feed_forward(network(seed=s)) for s in range(3)]
    stack = FeedForward(
        tuple(torch.stack(w) for w in zip(*(n.weights for n in nets), strict=True)),
        tuple(torch.stack(b) for b in zip(*(n.biases for n in nets), strict=True)),
        nets[0].activations,
    )
    x, b = torch.stack([draw(s)[0] for s in range(3)]), torch.stack([draw(s)[1] for s in range(3)])
    together = attribute(stack, x, b, 4, method)
    for k, net in enumerate(nets):
        alone = attribute(net, x[k], b[k], 4, method)
        torch.testing.assert_close(together.values[k], alone.values)
        torch.testing.assert_close(together.logit[k], alone.logit)


def test_dropout_is_off_and_the_mode_is_put_back():
    model, (x, b) = network(), draw(5)
    model.train()
    model[0].eval()
    first = integrated_gradients(model, x, b)
    assert torch.equal(first, integrated_gradients(model, x, b))
    assert [m.training for m in model[:3]] == [False, True, True]

    general = nn.ModuleDict({"a": network()})
    general.forward = lambda z: general["a"](z)
    general.train()
    assert torch.equal(integrated_gradients(general, x, b), integrated_gradients(general, x, b))
    assert general["a"].training


@pytest.mark.parametrize("method", ["segments", "midpoint"])
def test_attributions_are_differentiable_in_the_parameters(method):
    model, (x, b) = network(hidden=(6, 4)), draw(6, n=3)
    parameters = [p.detach().clone().requires_grad_() for p in model.parameters()]

    def values(*parameters):
        net = FeedForward(tuple(p.t() for p in parameters[::2]), parameters[1::2], (RELU, RELU))
        return attribute(net, x, b, 3, method).values

    if method == "segments":
        assert torch.autograd.gradcheck(values, parameters, atol=1e-5)
    else:  # the activation masks are constants to autograd: right in the weights that follow them only
        total = values(*parameters).square().sum()
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        assert all(g is None or g.abs().max() == 0 for g in (gradients[1], gradients[3]))


def test_the_general_path_is_differentiable_in_the_parameters():
    model, (x, b) = Residual().double(), draw(6, n=3)
    loss = integrated_gradients(model, x, b, 4).square().sum()
    loss.backward()
    weight = model.inner.weight
    analytic, step = weight.grad[0, 1].item(), 1e-6
    with torch.no_grad():
        weight[0, 1] += step
        up = integrated_gradients(model, x, b, 4).square().sum().item()
        weight[0, 1] -= 2 * step
        down = integrated_gradients(model, x, b, 4).square().sum().item()
    assert analytic == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_arrays_in_arrays_out():
    model, (x, b) = network().float(), draw(7)
    people = x.numpy()
    people.flags.writeable = False  # as a table's values often are
    values = integrated_gradients(model, people, b.numpy())
    assert isinstance(values, np.ndarray)
    np.testing.assert_allclose(values, integrated_gradients(model, x.float(), b.float()).detach().numpy(), rtol=1e-6)


def test_one_baseline_for_everyone():
    model, (x, b) = network(), draw(8)
    torch.testing.assert_close(integrated_gradients(model, x, b[0]), integrated_gradients(model, x, b[:1].expand_as(x)))


def test_a_person_at_the_baseline_gets_zero_and_finite_gradients():
    model, (x, _) = network(), draw(9)
    for method in ("segments", "midpoint", "exact"):
        found = attribute(model, x, x, 4, method)
        assert torch.equal(found.values, torch.zeros_like(x))
        assert torch.isfinite(found.gradients).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Tanh])
def test_parameters_get_finite_gradients_from_a_person_at_the_baseline(activation, dtype):
    model, x = network(activation=activation).to(dtype), draw(9)[0].to(dtype)
    attribute(model, x, x.clone(), 2, "segments").gradients.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.ReLU(), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(5, 5), nn.ReLU()),
        nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 1)),
    ],
)
def test_other_modules_are_not_taken_for_a_chain_of_layers(model):
    assert feed_forward(model) is None


def test_two_affine_maps_in_a_row_are_one():
    model = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2), nn.Linear(2, 1, bias=False)).double()
    x, _ = draw(1)
    chain = feed_forward(model)
    assert len(chain.weights) == 2
    torch.testing.assert_close(chain(x), model(x).squeeze(-1))


def test_nested_chains_without_bias_are_read_off():
    model = nn.Sequential(
        nn.Sequential(nn.Linear(5, 4, bias=False), nn.Identity(), nn.ReLU()), nn.Linear(4, 1)
    ).double()
    x, _ = draw(1)
    torch.testing.assert_close(feed_forward(model)(x), model(x).squeeze(-1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "trapezoid"}, "`method` must be one of"),
        ({"n_steps": 0}, "`n_steps` must be at least 1"),
        ({"x": torch.zeros(5)}, r"`x` must have shape \(n, d\)"),
        ({"baseline": torch.zeros(3)}, "`baseline` must have shape"),
        ({"x": torch.zeros(2, 4), "baseline": torch.zeros(4)}, "The model takes 5 features, but `x` has 4"),
        (
            {"model": network(activation=nn.Tanh).float(), "method": "exact"},
            "needs ReLU or leaky ReLU, but the model has",
        ),
        ({"model": Residual(), "method": "exact"}, "this Residual is not one"),
        ({"model": nn.Sequential(nn.Linear(5, 2))}, r"one logit per row, of shape \(6,\) or \(6, 1\), got"),
    ],
)
def test_bad_input_is_refused(change, message):
    arguments = {"model": network(), "x": torch.zeros(6, 5), "baseline": torch.zeros(5), "n_steps": 1}
    arguments["model"] = arguments["model"].float()
    with pytest.raises(InvalidInputError, match=message):
        integrated_gradients(**{**arguments, **change})


def test_a_model_that_returns_no_tensor_is_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InvalidTypeError, match="must return a tensor of logits, got tuple"):
        integrated_gradients(Pair(), torch.zeros(2, 3), torch.zeros(3))
