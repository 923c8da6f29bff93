"""ONNX models against onnxruntime, scikit-learn and torch."""

import io
import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.onnx import OnnxModel, onnx_network
from evenhand.models.protocol import LinearModel

pytestmark = pytest.mark.integration  # models are scored in a process apart


def exported(estimator, X, **settings):
    from skl2onnx import to_onnx

    return OnnxModel(to_onnx(estimator, X[:1].to_numpy(dtype=np.float32), **settings).SerializeToString())


def exported_module(module):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of its successor
        torch.onnx.export(
            module.eval(), (torch.zeros(2, 4),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    return OnnxModel(file.getvalue())


def graph(nodes, outputs, constants=(), width=4):
    """A hand-made model of one input `x`."""
    made = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, width])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in outputs],
        [numpy_helper.from_array(_as_constant(value), name) for name, value in constants],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def _as_constant(value):
    array = np.asarray(value)
    return array if array.dtype == np.int64 else array.astype(np.float32)


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        *(MLPClassifier((6, 5), activation=name, max_iter=30, random_state=0) for name in ("relu", "tanh", "logistic")),
        make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=30, random_state=0)),
    ],
    ids=["logistic", "relu", "tanh", "sigmoid", "pipeline"],
)
def test_a_plain_network_is_read_off_and_differentiated(estimator, zipmap, numbers):
    X, y, _ = numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(X, y)
    last = estimator[-1] if hasattr(estimator, "steps") else estimator
    model = exported(estimator, X, options={id(last): {"zipmap": zipmap}})
    audited = as_audited_model(model)
    is_linear = not isinstance(last, MLPClassifier)
    assert isinstance(audited, LinearModel if is_linear else DifferentiableModel)
    assert audited.attribution == ("linear" if is_linear else "integrated_gradients")
    x = audited.encode(X)
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 8, "segments")
    np.testing.assert_allclose(audited.probability(found.logit), estimator.predict_proba(X)[:, 1], atol=1e-5)
    assert found.completeness_gap.max() < 1e-8


def of_module(module, x):
    with torch.no_grad():
        return module(torch.from_numpy(x).float()).squeeze(-1)


@pytest.mark.parametrize(
    "last", [[], [torch.nn.Sigmoid()], [torch.nn.Sigmoid(), torch.nn.Flatten(0)]], ids=["logit", "sigmoid", "flat"]
)
@pytest.mark.parametrize("activation", [torch.nn.ReLU(), torch.nn.LeakyReLU(0.2), torch.nn.Softplus(), torch.nn.ELU()])
def test_a_torch_network_comes_back_from_its_file(activation, last, numbers):
    body = torch.nn.Sequential(torch.nn.Linear(4, 6), activation, torch.nn.Dropout(0.3), torch.nn.Linear(6, 1))
    audited = as_audited_model(exported_module(torch.nn.Sequential(body, *last)))
    assert isinstance(audited, DifferentiableModel)
    x = audited.encode(numbers[0])
    np.testing.assert_allclose(audited.margin(x), of_module(body.eval(), x), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*too short to have a direction")
def test_a_graph_of_any_other_kind_is_a_black_box(numbers):
    X, y, group = numbers
    trees = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)
    model = exported(trees, X)
    audited = as_audited_model(model)
    assert (audited.kind, audited.attribution, audited.output) == (
        "ONNX model (black box)",
        "sampled_shapley",
        "probability",
    )
    with pytest.warns(eh.EvenhandWarning, match=r"The ONNX model \(black box\) has no names for its inputs"):
        result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, trees.predict_proba(X)[:, 1], atol=1e-5)
    log_odds = as_audited_model(model, output="log-odds")
    np.testing.assert_allclose(log_odds.margin(log_odds.encode(X)), trees.decision_function(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*too short to have a direction", "ignore:.*has no names for its inputs")
def test_an_imputer_inside_a_graph_takes_missing_values(numbers):
    X, y, group = numbers
    X = X.mask(np.random.default_rng(0).random(X.shape) < 0.1).assign(income=X["income"])
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    settings = {"sensitive_features": group, "financial_features": ["income"], "evidence": False}
    model = exported(pipeline, X)
    result = eh.audit(model, X, y, **settings)
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, pipeline.predict_proba(X)[:, 1], atol=1e-5)
    with pytest.raises(InvalidInputError, match="missing or infinite values"):
        eh.audit(exported(LogisticRegression().fit(numbers[0], y), X), X, y, **settings)


def test_a_network_with_normalized_layers_is_scored_in_log_odds(numbers):
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 1))
    model = exported_module(module)
    assert onnx_network(model) is None
    audited = as_audited_model(model)
    assert audited.output == "log-odds"
    x = audited.encode(numbers[0])
    np.testing.assert_allclose(audited.margin(x), of_module(module, x), atol=1e-5, rtol=1e-5)


def loops_for(x_above):
    """A model that ends at once for people below a value, and never for others."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, None),
        ],
    )
    return [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "limit"], ["first"]),
        helper.make_node("MatMul", ["x", "weight"], ["scores"]),
        helper.make_node("Loop", ["", "first", "scores"], ["y"], body=body),
    ], {"limit": np.float32(x_above), "weight": np.ones((4, 1))}


def test_a_graph_that_does_not_end_for_some_people_is_stopped(monkeypatch):
    nodes, constants = loops_for(10.0)
    monkeypatch.setattr("evenhand.models.onnx_process._SECONDS", 2.0)
    model = OnnxModel(graph(nodes, ["y"], constants.items()))
    np.testing.assert_allclose(model.score(np.ones((3, 4))).reshape(-1), 4.0)
    with pytest.raises(InvalidInputError, match=r"cannot score .*: it did not answer within 2 seconds"):
        model.score(np.full((3, 4), 11.0))
    np.testing.assert_allclose(model.score(np.ones((3, 4))).reshape(-1), 4.0)  # in a new process


@pytest.mark.skipif(sys.platform == "win32", reason="memory cannot be limited")
def test_a_graph_that_asks_for_all_memory_for_some_people_is_stopped():
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["n"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["n", "one"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["zero"], keepdims=0),
        helper.make_node("MatMul", ["x", "weight"], ["scores"]),
        helper.make_node("Add", ["scores", "zero"], ["y"]),
    ]
    constants = {"one": np.array([1], dtype=np.int64), "weight": np.ones((4, 1))}
    model = OnnxModel(graph(nodes, ["y"], constants.items()))
    np.testing.assert_allclose(model.score(np.ones((3, 4))).reshape(-1), 4.0)
    with pytest.raises(InvalidInputError, match="it asks for more memory than a model of its size needs"):
        model.score(np.full((3, 4), 4e9))


def test_a_graph_that_returns_far_more_scores_than_people_is_refused():
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["scores"]), helper.make_node("Tile", ["scores", "n"], ["y"])]
    constants = {"n": np.array([1, 100_000], dtype=np.int64), "weight": np.ones((4, 1))}
    model = OnnxModel(graph(nodes, ["y"], constants.items()))
    with pytest.raises(InvalidInputError, match=r"it returns 300,000 values of type float32 for 3 people"):
        model.score(np.ones((3, 4)))


def test_weights_of_a_graph_inside_a_node_are_not_read_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    nodes, constants = loops_for(10.0)
    outside = numpy_helper.from_array(np.zeros(4, dtype=np.float32), "outside")
    onnx.external_data_helper.set_external_data(outside, "weights.bin")
    outside.ClearField("raw_data")
    nodes[-1].attribute[0].g.initializer.append(outside)
    with pytest.raises(InvalidInputError, match="stores weights in separate files, which are not read"):
        OnnxModel(graph(nodes, ["y"], constants.items()))


def test_scores_asked_for_at_the_same_time_are_those_asked_for_in_turn(numbers):
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 1))
    model = exported_module(module)
    parts = [np.random.default_rng(k).normal(size=(50, 4)) for k in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(model.score, parts))
    for part, scores in zip(parts, found, strict=True):
        np.testing.assert_array_equal(scores, model.score(part))


def test_scaling_and_a_softmax_of_two_are_read(numbers):
    constants = {
        "mean": [1.0, 2.0, 3.0, 4.0],
        "scale": [2.0, 1.0, 0.5, 4.0],
        "w": np.arange(8).reshape(4, 2) / 8,
        "c": [0.1, -0.2],
    }
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["a"]),
        helper.make_node("Div", ["a", "scale"], ["b"]),
        helper.make_node("Gemm", ["b", "w", "c"], ["h"], alpha=2.0, beta=3.0),
        helper.make_node("Softmax", ["h"], ["p"], axis=-1),
    ]
    audited = as_audited_model(OnnxModel(graph(nodes, ["p"], constants.items())))
    assert isinstance(audited, LinearModel)
    X = numbers[0].to_numpy()
    h = 2 * ((X - constants["mean"]) / constants["scale"]) @ constants["w"] + 3 * np.asarray(constants["c"])
    np.testing.assert_allclose(audited.margin(audited.encode(numbers[0])), h[:, 1] - h[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Sub", ["k", "x"], ["a"]), ("MatMul", ["a", "w"], ["p"])],  # the input is taken from a constant
        [("Mul", ["x", "x"], ["a"]), ("MatMul", ["a", "w"], ["p"])],  # and here from itself
        [("MatMul", ["x", "w"], ["a"]), ("Abs", ["a"], ["p"])],
        [("MatMul", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("Add", ["a", "b"], ["p"])],  # a branch
        [("Relu", ["x"], ["p"])],  # four outputs
    ],
)
def test_what_is_no_chain_is_not_taken_for_one(nodes):
    made = graph([helper.make_node(*node) for node in nodes], ["p"], [("w", np.ones((4, 1))), ("k", np.ones(4))])
    assert onnx_network(OnnxModel(made)) is None


def test_columns_may_be_inputs_of_their_own(numbers):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.compose import make_column_transformer

    X, y, group = numbers
    scaled = make_column_transformer((StandardScaler(), list(X.columns)))
    estimator = make_pipeline(scaled, LogisticRegression()).fit(X, y)
    types = [(name, FloatTensorType([None, 1])) for name in X.columns]
    model = OnnxModel(convert_sklearn(estimator, initial_types=types).SerializeToString())
    assert model.column_names == list(X.columns)
    result = eh.audit(
        model, X[X.columns[::-1]], y, sensitive_features=group, financial_features=["income"], evidence=False
    )
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, estimator.predict_proba(X)[:, 1], atol=1e-5)


def test_what_is_no_model_is_refused():
    with pytest.raises(InvalidInputError, match="not a valid ONNX model"):
        OnnxModel(b"not a model")
    text = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "text",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [None, 1])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [None, 1])],
    )
    model = helper.make_model(text, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    with pytest.raises(InvalidInputError, match=r"takes inputs of type \['tensor\(string\)'\]; only numbers"):
        OnnxModel(model.SerializeToString())
    strange = graph([helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")], ["y"])
    with pytest.raises(InvalidInputError, match=r"not a valid ONNX model|onnxruntime cannot run"):
        OnnxModel(strange)


def test_a_model_travels_to_other_processes(numbers):
    model = exported_module(torch.nn.Linear(4, 1))
    X = numbers[0].to_numpy()
    expected = model.score(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).score(X), expected)


def test_weights_in_other_files_are_refused():
    proto = onnx.load_model_from_string(
        graph([helper.make_node("MatMul", ["x", "w"], ["p"])], ["p"], [("w", np.ones((4, 1)))])
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "secrets.txt"
    with pytest.raises(InvalidInputError, match="stores weights in separate files"):
        OnnxModel(proto.SerializeToString())


def test_models_without_a_score_and_tables_of_another_width_are_refused(numbers):
    nodes = [helper.make_node("Cast", ["x"], ["p"], to=TensorProto.INT64)]
    made = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("p", TensorProto.INT64, [None, None])],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    labels = OnnxModel(model.SerializeToString())
    with pytest.raises(InvalidInputError, match="and no numbers to explain"):
        as_audited_model(labels)
    network = exported_module(torch.nn.Linear(4, 1))
    with pytest.raises(InvalidInputError, match=r"The ONNX model cannot score \(2, 3\)"):
        network.score(np.zeros((2, 3)))
    two = helper.make_graph(
        [helper.make_node("Add", ["x", "z"], ["p"])],
        "two",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in ("x", "z")],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, None])],
    )
    model = helper.make_model(two, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    with pytest.raises(InvalidInputError, match="several inputs of more than one column each"):
        OnnxModel(model.SerializeToString())


def test_underscores_of_an_input_stand_for_the_spaces_of_a_column(numbers):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.compose import make_column_transformer

    X, y, _ = numbers
    X = X.rename(columns={"income": "income_per_year"})
    scaled = make_column_transformer((StandardScaler(), list(X.columns)))
    estimator = make_pipeline(scaled, LogisticRegression()).fit(X, y)
    types = [(name, FloatTensorType([None, 1])) for name in X.columns]
    model = OnnxModel(convert_sklearn(estimator, initial_types=types).SerializeToString())
    spelled = X.rename(columns={"income_per_year": "income per year"})[["debt", "income per year", "years", "assets"]]
    audited = as_audited_model(model, table=spelled)
    scores = audited.margin(audited.encode(audited.aligned(spelled)))
    np.testing.assert_allclose(scores, estimator.predict_proba(X)[:, 1], atol=1e-5)
