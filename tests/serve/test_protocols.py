"""The same clips by every protocol, and by third-party clients."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from known_models import HashModel, digest_to_progress, initial_digest, next_digest
from PIL import Image
from services import LIFT, random_videos, serving, serving_grpc

from embodied_rm.client.wire import HEADER_LENGTH_HEADER, decode_response, encode_request
from embodied_rm.errors import UserError
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES, INFERENCE_MESSAGES, SESSION_CLASSES
from embodied_rm.serve.service_config import ServeConfig, ServeLimits

GRPC_CONFIG = ServeConfig(port=0, grpc_port=0)


def expected_progress(video: np.ndarray, instruction: str) -> np.ndarray:
    """Return the progress that `HashModel` predicts for a clip [T, V, H, W, 3], the first frame included."""
    digests = [initial_digest(instruction, video[0])]
    for frames in video[1:]:
        digests.append(next_digest(digests[-1], frames))
    return np.concatenate([[0], digest_to_progress(np.array(digests[1:]))]) if len(digests) > 1 else np.zeros(1)


def expected_columns(video: np.ndarray) -> np.ndarray:
    """Return the progress [2, T] of the two clips in [T, 2, V, H, W, 3]."""
    return np.stack([expected_progress(video[:, row], text) for row, text in enumerate((LIFT, "open it"))])


def tensor_headers(video: np.ndarray) -> list[dict]:
    """Return the headers of the input tensors; all but the frames have data."""
    shape = [video.shape[1], video.shape[0], *video.shape[2:]]
    return [
        {"name": "frames", "datatype": "UINT8", "shape": shape},
        {"name": "instruction", "datatype": "BYTES", "shape": [2], "data": [LIFT, "open it"]},
        {"name": "views", "datatype": "BYTES", "shape": [2], "data": ["front", "wrist"]},
    ]


def test_open_inference_protocol_with_json_and_binary_data() -> None:
    video = random_videos(2, 5)
    pixels = np.moveaxis(video, 0, 1)
    with serving(HashModel()) as url:
        metadata = httpx.get(f"{url}/v2/models/reward").json()
        assert {tensor["name"] for tensor in metadata["inputs"]} == {"frames", "instruction", "views"}
        assert httpx.get(f"{url}/v2/models/reward/ready").status_code == 200
        for name in ("other", "..%2freward", "reward%00"):
            assert httpx.get(f"{url}/v2/models/{name}").status_code == 404
        frames, *rest = tensor_headers(video)
        for data in (pixels.ravel().tolist(), pixels.tolist()):
            request = {"id": "7", "inputs": [{**frames, "data": data}, *rest], "outputs": [{"name": "progress"}]}
            response = httpx.post(f"{url}/v2/models/reward/infer", json=request).json()
            assert response["id"] == "7" and response["model_name"] == "reward" and len(response["outputs"]) == 1
            np.testing.assert_allclose(
                np.reshape(response["outputs"][0]["data"], (2, 5)), expected_columns(video), atol=1e-7
            )
        raw_frames = {**frames, "parameters": {"binary_data_size": pixels.size}}
        texts = [text.encode() for text in (LIFT, "open it")]
        prefixed = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        instructions = {"name": "instruction", "datatype": "BYTES", "shape": [2]}
        instructions["parameters"] = {"binary_data_size": len(prefixed)}
        request = {"inputs": [instructions, raw_frames, rest[1]], "parameters": {"binary_data_output": True}}
        text, blobs = encode_request(request, [prefixed, pixels.tobytes()])
        headers = {HEADER_LENGTH_HEADER: str(len(text)), "content-type": "application/octet-stream"}
        response = httpx.post(f"{url}/v2/models/reward/infer", content=text + b"".join(blobs), headers=headers)
        _, columns, _ = decode_response(response.content, int(response.headers[HEADER_LENGTH_HEADER]))
        np.testing.assert_allclose(columns["progress"], expected_columns(video), atol=1e-7)
        assert (columns["ood"] == -1).all() and columns["valid"].all()


def stub(channel: grpc.Channel, method: str, response_type: str):
    """Return a callable for a method of the Open Inference Protocol."""
    service = "inference.GRPCInferenceService"
    deserialize = INFERENCE_CLASSES[response_type].FromString
    return channel.unary_unary(f"/{service}/{method}", lambda message: message.SerializeToString(), deserialize)


@pytest.fixture(scope="module")
def grpc_service():
    """URL of a service, and a gRPC channel to it."""
    with serving_grpc(HashModel(), GRPC_CONFIG) as (url, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield url, channel


KEY_METADATA = (("authorization", "Bearer secret"),)


def test_clips_by_grpc(grpc_service) -> None:
    _, channel = grpc_service
    video = random_videos(2, 4)
    pixels = np.moveaxis(video, 0, 1)
    infer = stub(channel, "ModelInfer", "ModelInferResponse")
    tensor_type = INFERENCE_CLASSES["ModelInferRequest.InferInputTensor"]
    frames, *rest = [
        tensor_type(**{k: v for k, v in header.items() if k != "data"}) for header in tensor_headers(video)
    ]
    contents = INFERENCE_CLASSES["InferTensorContents"]
    for tensor, texts in zip(rest, ([LIFT, "open it"], ["front", "wrist"]), strict=True):
        tensor.contents.CopyFrom(contents(bytes_contents=[text.encode() for text in texts]))
    frames.contents.CopyFrom(contents(uint_contents=pixels.ravel().tolist()))
    request = INFERENCE_CLASSES["ModelInferRequest"](model_name="reward", id="9", inputs=[frames, *rest])
    response = infer(request, metadata=KEY_METADATA, timeout=20)
    values = dict(zip([output.name for output in response.outputs], response.raw_output_contents, strict=True))
    np.testing.assert_allclose(
        np.frombuffer(values["progress"], "<f4").reshape(2, 4), expected_columns(video), atol=1e-7
    )
    assert response.id == "9" and list(response.outputs[0].shape) == [2, 4]
    with pytest.raises(grpc.RpcError) as raised:
        infer(request, timeout=20)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    request.model_name = "other"
    with pytest.raises(grpc.RpcError) as raised:
        infer(request, metadata=KEY_METADATA, timeout=20)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_session_api_by_grpc(grpc_service) -> None:
    _, channel = grpc_service
    video = random_videos(2, 3, seed=5)
    header = {"client_id": "g", "env_ids": [0, 1], "episode_ids": [0, 0], "views": ["front", "wrist"]}
    header["frames"] = {"shape": list(video.shape[1:])}

    def call(method: str, header: dict, body: bytes):
        rpc = channel.unary_unary(
            f"/embodied_rm.RewardService/{method}",
            lambda m: m.SerializeToString(),
            SESSION_CLASSES["SessionResponse"].FromString,
        )
        return rpc(
            SESSION_CLASSES["SessionRequest"](header=json.dumps(header).encode(), body=body),
            metadata=KEY_METADATA,
            timeout=20,
        )

    call("Reset", {**header, "instructions": [LIFT, "open it"]}, video[0].tobytes())
    for t in (1, 2):
        response = call("Step", {**header, "steps": [t, t]}, video[t].tobytes())
        _, columns, _ = decode_response(response.header + response.body, len(response.header))
        np.testing.assert_allclose(columns["progress"], expected_columns(video)[:, t], atol=1e-7)
    with pytest.raises(grpc.RpcError) as raised:
        call("Step", {**header, "episode_ids": [1, 0], "steps": [1, 3]}, video[1].tobytes())
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert ("env_ids", "[0]") in [tuple(pair) for pair in raised.value.trailing_metadata()]
    with pytest.raises(grpc.RpcError) as raised:
        call("Step", {**header, "steps": [7, 7]}, video[1].tobytes())
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_health_and_metadata_by_grpc(grpc_service) -> None:
    _, channel = grpc_service
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
    for method, field in (("ServerLive", "live"), ("ServerReady", "ready")):
        response = stub(channel, method, f"{method}Response")(
            INFERENCE_CLASSES[f"{method}Request"](), metadata=KEY_METADATA, timeout=20
        )
        assert getattr(response, field)
    request = INFERENCE_CLASSES["ModelMetadataRequest"](name="reward")
    response = stub(channel, "ModelMetadata", "ModelMetadataResponse")(request, metadata=KEY_METADATA, timeout=20)
    assert response.platform == "embodied_rm" and {tensor.name for tensor in response.inputs} == {
        "frames",
        "instruction",
        "views",
    }


def test_messages_match_those_of_the_protobuf_compiler(tmp_path) -> None:
    """Compile a .proto file that is generated from the table, and exchange messages between both versions."""
    from grpc_tools import protoc

    lines = ['syntax = "proto3";', "package inference;"]

    def append_message(name: str, depth: int = 0) -> None:
        indent = "  " * depth
        lines.append(f"{indent}message {name.split('.')[-1]} {{")
        for inner in INFERENCE_MESSAGES:
            if inner.rpartition(".")[0] == name:
                append_message(inner, depth + 1)
        is_oneof = name == "InferParameter"
        lines.extend([f"{indent}  oneof parameter_choice {{"] * is_oneof)
        for number, field in enumerate(filter(None, INFERENCE_MESSAGES[name].split("; ")), 1):
            lines.append(f"{indent}  {field} = {number};")
        lines.extend([f"{indent}  }}"] * is_oneof)
        lines.append(f"{indent}}}")

    for name in INFERENCE_MESSAGES:
        if "." not in name:
            append_message(name)
    (tmp_path / "compiled.proto").write_text("\n".join(lines))
    assert protoc.main(["", f"-I{tmp_path}", f"--descriptor_set_out={tmp_path}/set", f"{tmp_path}/compiled.proto"]) == 0
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    compiled_type = message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelInferRequest"))
    message = INFERENCE_CLASSES["ModelInferRequest"](model_name="m", raw_input_contents=[b"x"])
    message.parameters["a"].int64_param = -3
    message.inputs.add(name="n", shape=[1, -1]).parameters["b"].string_param = "s"
    parsed = compiled_type.FromString(message.SerializeToString(deterministic=True))
    assert parsed.parameters["a"].int64_param == -3 and parsed.inputs[0].parameters["b"].string_param == "s"
    assert parsed.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def npy_file(frames: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, frames)
    return file.getvalue()


def make_form(video: np.ndarray, task: str = LIFT, index: int = 0, **fields: object) -> tuple[dict, dict]:
    """Return the files and fields of a form, as Robometer's clients send them."""
    key = f"sample_{index}_trajectory_frames"
    sample = {
        "sample_type": "progress",
        "trajectory": {"frames": {"__numpy_file__": key}, "frames_shape": list(video.shape), "task": task, "id": "0"},
        **fields,
    }
    return {key: (f"{key}.npy", npy_file(video), "application/octet-stream")}, {f"sample_{index}": json.dumps(sample)}


def test_robometer_clients_get_the_format_of_their_server() -> None:
    first, second = random_videos(1, 6, num_views=1)[:, 0, 0], random_videos(1, 3, seed=2, num_views=1)[:, 0, 0]
    files, data = make_form(first)
    second_files, second_data = make_form(second, "open it", 1)
    with serving(HashModel()) as url:
        response = httpx.post(
            f"{url}/evaluate_batch_npy",
            files={**files, **second_files},
            data={**data, **second_data, "use_frame_steps": "true"},
        ).json()
        assert httpx.get(f"{url}/health").json()["status"] == "healthy"
        progress = response["outputs_progress"]["progress_pred"]
        np.testing.assert_allclose(progress[0], expected_progress(first[:, None], LIFT), atol=1e-7)
        np.testing.assert_allclose(progress[1], expected_progress(second[:, None], "open it"), atol=1e-7)
        assert [len(curve) for curve in response["outputs_success"]["success_probs"]] == [6, 3]


@pytest.mark.parametrize("max_queue", [256, 2])
def test_a_form_of_more_samples_than_the_queue_of_a_client_is_answered(max_queue: int) -> None:
    videos = random_videos(200, 3, num_views=1)[:, :, 0]
    files, data = {}, {}
    for index in range(200):
        more_files, more_data = make_form(videos[:, index], index=index)
        files, data = files | more_files, data | more_data
    config = ServeConfig(port=0, drain_timeout_s=5, limits=ServeLimits(max_queue=max_queue))
    with serving(HashModel(), config=config) as url:
        response = httpx.post(f"{url}/evaluate_batch_npy", files=files, data=data, timeout=60)
        assert response.status_code == 200, response.text
        progress = response.json()["outputs_progress"]["progress_pred"]
        for index in (0, 199):
            expected = expected_progress(videos[:, index, None], LIFT)
            np.testing.assert_allclose(progress[index], expected, atol=1e-7)


class FailsAndCounts(HashModel):
    """Refuses one instruction, and counts the frames that it scores."""

    num_frames = 0

    def reset(self, views: Any, instructions: Any, *args: Any) -> Any:
        if "refused" in instructions:
            raise UserError("this instruction is refused")
        return super().reset(views, instructions, *args)

    def step(self, state: Any, views: Any) -> Any:
        self.num_frames += len(views)
        return super().step(state, views)


def test_an_error_of_one_sample_ends_the_work_on_the_others() -> None:
    model, video = FailsAndCounts(), random_videos(1, 400, num_views=1)[:, 0, 0]
    files, data = {}, {}
    for index in range(20):
        more_files, more_data = make_form(video, "refused" if index == 7 else LIFT, index)
        files, data = files | more_files, data | more_data
    with serving(model) as url:
        response = httpx.post(f"{url}/evaluate_batch_npy", files=files, data=data, timeout=60)
        assert response.status_code == 422 and "this instruction is refused" in response.json()["error"]
        time.sleep(0.3)  # the frames that are under way
        scored = model.num_frames
        time.sleep(0.5)
        assert model.num_frames == scored < 20 * 399


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04canary", "no .npy file"),
        (npy_file(np.zeros((2, 4, 4, 3), np.float32)), "uint8"),
        (npy_file(np.zeros((2, 3, 4, 4), np.uint8)), "uint8"),
        (npy_file(np.asfortranarray(np.zeros((2, 4, 4, 3), np.uint8))), "uint8"),
        (npy_file(np.zeros((2, 4, 4, 3), np.uint8))[:-1], "95 bytes"),
        (npy_file(np.zeros((2, 4, 4, 3), np.uint8)) + b"x", "97 bytes"),
        (npy_file(np.zeros((0, 4, 4, 3), np.uint8)), "at most"),
        (npy_file(np.zeros((1, 1, 1, 3), np.uint8)).replace(b"(1, 1, 1, 3)", b"(999999999, 999, 999, 3)"), "uint8"),
        (npy_file(np.array([{"a": 1}])), "uint8"),
    ],
)
def test_npy_file_without_pixels_is_rejected(content: bytes, message: str) -> None:
    files, data = make_form(random_videos(1, 2, num_views=1)[:, 0, 0])
    (key,) = files
    with serving(HashModel()) as url:
        response = httpx.post(f"{url}/evaluate_batch_npy", files={key: ("x.npy", content)}, data=data)
        assert response.status_code == 422 and message in response.json()["error"], response.text


def encode_images(video: np.ndarray, image_format: str) -> list[bytes]:
    """Return the frames [N, V, H, W, 3] as image files."""
    encoded = []
    for frame in video.reshape(-1, *video.shape[2:]):
        file = io.BytesIO()
        Image.fromarray(frame).save(file, image_format)
        encoded.append(file.getvalue())
    return encoded


def test_png_images_give_the_same_progress_as_raw_pixels() -> None:
    video = random_videos(2, 3)
    with serving(HashModel()) as url:
        for t, endpoint in enumerate(("reset", "step", "step")):
            files = encode_images(video[t], "PNG")
            header = {"client_id": "p", "env_ids": [0, 1], "episode_ids": [0, 0], "views": ["front", "wrist"]}
            header["frames"] = {"shape": [2, 2], "image_bytes": [len(file) for file in files]}
            header |= {"instructions": [LIFT, "open it"]} if t == 0 else {"steps": [t, t]}
            text, blobs = encode_request(header, files)
            headers = {HEADER_LENGTH_HEADER: str(len(text)), "content-type": "application/octet-stream"}
            response = httpx.post(f"{url}/v1/{endpoint}", content=text + b"".join(blobs), headers=headers)
            assert response.status_code == 200, response.text
            _, columns, _ = decode_response(response.content, int(response.headers[HEADER_LENGTH_HEADER]))
        np.testing.assert_allclose(columns["progress"], expected_columns(video)[:, 2], atol=1e-7)
