"""The same videos by every protocol that is spoken, and by clients that know nothing of us."""

from __future__ import annotations

import io
import json

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from known_models import HashModel, digest_to_progress, initial_digest, next_digest
from PIL import Image
from services import serving, videos

from embodied_rm.serve.client.wire import HEADER_LENGTH_HEADER, decode_response, encode_request
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES, INFERENCE_MESSAGES, SESSION_CLASSES
from embodied_rm.serve.service_config import ServeConfig

LIFT = "lift the red cube"
SPOKEN = ServeConfig(port=0, grpc_port=0)


def expected(video: np.ndarray, instruction: str) -> np.ndarray:
    """What `Hashing` says of a video [T, V, H, W, 3], its first frame included."""
    digests = [initial_digest(instruction, video[0])]
    for frames in video[1:]:
        digests.append(next_digest(digests[-1], frames))
    return np.concatenate([[0], digest_to_progress(np.array(digests[1:]))]) if len(digests) > 1 else np.zeros(1)


def both(video: np.ndarray) -> np.ndarray:
    """[T, N, V, H, W, 3] -> what is said of the two videos of it, [2, T]."""
    return np.stack([expected(video[:, row], text) for row, text in enumerate((LIFT, "open it"))])


def tensors(video: np.ndarray) -> list[dict]:
    shape = [video.shape[1], video.shape[0], *video.shape[2:]]
    return [
        {"name": "frames", "datatype": "UINT8", "shape": shape},
        {"name": "instruction", "datatype": "BYTES", "shape": [2], "data": [LIFT, "open it"]},
        {"name": "views", "datatype": "BYTES", "shape": [2], "data": ["front", "wrist"]},
    ]


def test_videos_by_the_open_inference_protocol_in_json_and_in_bytes() -> None:
    video = videos(2, 5)
    pixels = np.moveaxis(video, 0, 1)
    with serving(HashModel()) as url:
        about = httpx.get(f"{url}/v2/models/reward").json()
        assert {one["name"] for one in about["inputs"]} == {"frames", "instruction", "views"}
        assert httpx.get(f"{url}/v2/models/reward/ready").status_code == 200
        for other in ("other", "..%2freward", "reward%00"):
            assert httpx.get(f"{url}/v2/models/{other}").status_code == 404
        frames, *rest = tensors(video)
        for data in (pixels.ravel().tolist(), pixels.tolist()):
            asked = {"id": "7", "inputs": [{**frames, "data": data}, *rest], "outputs": [{"name": "progress"}]}
            told = httpx.post(f"{url}/v2/models/reward/infer", json=asked).json()
            assert told["id"] == "7" and told["model_name"] == "reward" and len(told["outputs"]) == 1
            np.testing.assert_allclose(np.reshape(told["outputs"][0]["data"], (2, 5)), both(video), atol=1e-7)
        raw = {**frames, "parameters": {"binary_data_size": pixels.size}}
        texts = [text.encode() for text in (LIFT, "open it")]
        prefixed = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        words = {"name": "instruction", "datatype": "BYTES", "shape": [2]}
        words["parameters"] = {"binary_data_size": len(prefixed)}
        asked = {"inputs": [words, raw, rest[1]], "parameters": {"binary_data_output": True}}
        text, blobs = encode_request(asked, [prefixed, pixels.tobytes()])
        headers = {HEADER_LENGTH_HEADER: str(len(text)), "content-type": "application/octet-stream"}
        response = httpx.post(f"{url}/v2/models/reward/infer", content=text + b"".join(blobs), headers=headers)
        _, columns, _ = decode_response(response.content, int(response.headers[HEADER_LENGTH_HEADER]))
        np.testing.assert_allclose(columns["progress"], both(video), atol=1e-7)
        assert (columns["ood"] == -1).all() and columns["valid"].all()


def stub(channel: grpc.Channel, method: str, answer: str):
    service = "inference.GRPCInferenceService"
    deserialise = INFERENCE_CLASSES[answer].FromString
    return channel.unary_unary(f"/{service}/{method}", lambda message: message.SerializeToString(), deserialise)


@pytest.fixture(scope="module")
def spoken():
    """A service, and a channel to it."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        import embodied_rm.serve.server as server

        patch.setattr(server, "log_event", lambda event, **facts: lines.append(facts.get("grpc_port", 0)))
        with serving(HashModel(), config=SPOKEN, key="open sesame") as url:
            port = next(line for line in lines if line)
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield url, channel


KEY = (("authorization", "Bearer open sesame"),)


def test_videos_by_grpc(spoken) -> None:
    _, channel = spoken
    video = videos(2, 4)
    pixels = np.moveaxis(video, 0, 1)
    infer = stub(channel, "ModelInfer", "ModelInferResponse")
    kind = INFERENCE_CLASSES["ModelInferRequest.InferInputTensor"]
    frames, *rest = [kind(**{k: v for k, v in one.items() if k != "data"}) for one in tensors(video)]
    contents = INFERENCE_CLASSES["InferTensorContents"]
    for tensor, texts in zip(rest, ([LIFT, "open it"], ["front", "wrist"]), strict=True):
        tensor.contents.CopyFrom(contents(bytes_contents=[text.encode() for text in texts]))
    frames.contents.CopyFrom(contents(uint_contents=pixels.ravel().tolist()))
    asked = INFERENCE_CLASSES["ModelInferRequest"](model_name="reward", id="9", inputs=[frames, *rest])
    told = infer(asked, metadata=KEY, timeout=20)
    values = dict(zip([one.name for one in told.outputs], told.raw_output_contents, strict=True))
    np.testing.assert_allclose(np.frombuffer(values["progress"], "<f4").reshape(2, 4), both(video), atol=1e-7)
    assert told.id == "9" and list(told.outputs[0].shape) == [2, 4]
    with pytest.raises(grpc.RpcError) as refused:
        infer(asked, timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    asked.model_name = "other"
    with pytest.raises(grpc.RpcError) as refused:
        infer(asked, metadata=KEY, timeout=20)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_sessions_by_grpc_are_those_of_http(spoken) -> None:
    _, channel = spoken
    video = videos(2, 3, seed=5)
    told = {"client_id": "g", "env_ids": [0, 1], "episode_ids": [0, 0], "views": ["front", "wrist"]}
    told["frames"] = {"shape": list(video.shape[1:])}

    def ask(method: str, header: dict, body: bytes):
        call = channel.unary_unary(
            f"/embodied_rm.RewardService/{method}",
            lambda m: m.SerializeToString(),
            SESSION_CLASSES["SessionResponse"].FromString,
        )
        return call(
            SESSION_CLASSES["SessionRequest"](header=json.dumps(header).encode(), body=body), metadata=KEY, timeout=20
        )

    ask("Reset", {**told, "instructions": [LIFT, "open it"]}, video[0].tobytes())
    for t in (1, 2):
        answer = ask("Step", {**told, "steps": [t, t]}, video[t].tobytes())
        _, columns, _ = decode_response(answer.header + answer.body, len(answer.header))
        np.testing.assert_allclose(columns["progress"], both(video)[:, t], atol=1e-7)
    with pytest.raises(grpc.RpcError) as refused:
        ask("Step", {**told, "episode_ids": [1, 0], "steps": [1, 3]}, video[1].tobytes())
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert ("env_ids", "[0]") in [tuple(pair) for pair in refused.value.trailing_metadata()]
    with pytest.raises(grpc.RpcError) as refused:
        ask("Step", {**told, "steps": [7, 7]}, video[1].tobytes())
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_health_and_metadata_by_grpc(spoken) -> None:
    _, channel = spoken
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
    for method, answer in (("ServerLive", "live"), ("ServerReady", "ready")):
        told = stub(channel, method, f"{method}Response")(
            INFERENCE_CLASSES[f"{method}Request"](), metadata=KEY, timeout=20
        )
        assert getattr(told, answer)
    asked = INFERENCE_CLASSES["ModelMetadataRequest"](name="reward")
    told = stub(channel, "ModelMetadata", "ModelMetadataResponse")(asked, metadata=KEY, timeout=20)
    assert told.platform == "embodied_rm" and {one.name for one in told.inputs} == {"frames", "instruction", "views"}


def test_the_messages_are_those_that_the_protocol_s_own_compiler_makes(tmp_path) -> None:
    """From our table a .proto is written, compiled, and both read each other's bytes."""
    from grpc_tools import protoc

    lines = ['syntax = "proto3";', "package inference;"]

    def written(name: str, depth: int = 0) -> None:
        pad = "  " * depth
        lines.append(f"{pad}message {name.split('.')[-1]} {{")
        for inner in INFERENCE_MESSAGES:
            if inner.rpartition(".")[0] == name:
                written(inner, depth + 1)
        choice = name == "InferParameter"
        lines.extend([f"{pad}  oneof parameter_choice {{"] * choice)
        for field, (number, kind) in INFERENCE_MESSAGES[name].items():
            kind = kind.replace("map ", "map<string, ").replace("*", "repeated ") + ">" * kind.startswith("map")
            lines.append(f"{pad}  {kind} {field} = {number};")
        lines.extend([f"{pad}  }}"] * choice)
        lines.append(f"{pad}}}")

    for name in INFERENCE_MESSAGES:
        if "." not in name:
            written(name)
    (tmp_path / "theirs.proto").write_text("\n".join(lines))
    assert protoc.main(["", f"-I{tmp_path}", f"--descriptor_set_out={tmp_path}/set", f"{tmp_path}/theirs.proto"]) == 0
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    found = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    theirs = message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelInferRequest"))
    ours = INFERENCE_CLASSES["ModelInferRequest"](model_name="m", raw_input_contents=[b"x"])
    ours.parameters["a"].int64_param = -3
    ours.inputs.add(name="n", shape=[1, -1]).parameters["b"].string_param = "s"
    read = theirs.FromString(ours.SerializeToString(deterministic=True))
    assert read.parameters["a"].int64_param == -3 and read.inputs[0].parameters["b"].string_param == "s"
    assert read.SerializeToString(deterministic=True) == ours.SerializeToString(deterministic=True)


def npy(frames: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, frames)
    return file.getvalue()


def form(video: np.ndarray, task: str = LIFT, number: int = 0, **more: object) -> tuple[dict, dict]:
    """Files and fields as Robometer's clients send them."""
    key = f"sample_{number}_trajectory_frames"
    sample = {
        "sample_type": "progress",
        "trajectory": {"frames": {"__numpy_file__": key}, "frames_shape": list(video.shape), "task": task, "id": "0"},
        **more,
    }
    return {key: (f"{key}.npy", npy(video), "application/octet-stream")}, {f"sample_{number}": json.dumps(sample)}


def test_clients_of_robometer_are_answered_as_their_own_server_does() -> None:
    one, other = videos(1, 6, views=1)[:, 0, 0], videos(1, 3, seed=2, views=1)[:, 0, 0]
    files, data = form(one)
    more, fields = form(other, "open it", 1)
    with serving(HashModel()) as url:
        told = httpx.post(
            f"{url}/evaluate_batch_npy", files={**files, **more}, data={**data, **fields, "use_frame_steps": "true"}
        ).json()
        assert httpx.get(f"{url}/health").json()["status"] == "healthy"
        progress = told["outputs_progress"]["progress_pred"]
        np.testing.assert_allclose(progress[0], expected(one[:, None], LIFT), atol=1e-7)
        np.testing.assert_allclose(progress[1], expected(other[:, None], "open it"), atol=1e-7)
        assert [len(curve) for curve in told["outputs_success"]["success_probs"]] == [6, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04canary", "no .npy file"),
        (npy(np.zeros((2, 4, 4, 3), np.float32)), "uint8"),
        (npy(np.zeros((2, 3, 4, 4), np.uint8)), "uint8"),
        (npy(np.asfortranarray(np.zeros((2, 4, 4, 3), np.uint8))), "uint8"),
        (npy(np.zeros((2, 4, 4, 3), np.uint8))[:-1], "95 bytes"),
        (npy(np.zeros((2, 4, 4, 3), np.uint8)) + b"x", "97 bytes"),
        (npy(np.zeros((0, 4, 4, 3), np.uint8)), "at most"),
        (npy(np.zeros((1, 1, 1, 3), np.uint8)).replace(b"(1, 1, 1, 3)", b"(999999999, 999, 999, 3)"), "uint8"),
        (npy(np.array([{"a": 1}])), "uint8"),
    ],
)
def test_a_npy_file_that_holds_anything_but_pixels_is_refused(content: bytes, message: str) -> None:
    files, data = form(videos(1, 2, views=1)[:, 0, 0])
    (key,) = files
    with serving(HashModel()) as url:
        refused = httpx.post(f"{url}/evaluate_batch_npy", files={key: ("x.npy", content)}, data=data)
        assert refused.status_code == 422 and message in refused.json()["error"], refused.text


def images(video: np.ndarray, kind: str) -> list[bytes]:
    """The frames [N, V, H, W, 3] as files."""
    encoded = []
    for frame in video.reshape(-1, *video.shape[2:]):
        file = io.BytesIO()
        Image.fromarray(frame).save(file, kind)
        encoded.append(file.getvalue())
    return encoded


def test_images_are_judged_like_their_pixels() -> None:
    video = videos(2, 3)
    with serving(HashModel()) as url:
        for t, asked in enumerate(("reset", "step", "step")):
            files = images(video[t], "PNG")
            told = {"client_id": "p", "env_ids": [0, 1], "episode_ids": [0, 0], "views": ["front", "wrist"]}
            told["frames"] = {"shape": [2, 2], "image_bytes": [len(one) for one in files]}
            told |= {"instructions": [LIFT, "open it"]} if t == 0 else {"steps": [t, t]}
            text, blobs = encode_request(told, files)
            headers = {HEADER_LENGTH_HEADER: str(len(text)), "content-type": "application/octet-stream"}
            response = httpx.post(f"{url}/v1/{asked}", content=text + b"".join(blobs), headers=headers)
            assert response.status_code == 200, response.text
            _, columns, _ = decode_response(response.content, int(response.headers[HEADER_LENGTH_HEADER]))
        np.testing.assert_allclose(columns["progress"], both(video)[:, 2], atol=1e-7)
