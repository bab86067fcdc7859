"""T5-small's forward by PyTorch and by ONNX Runtime, for scripts/bench infer; run by a Python that has torch, transformers and
onnxruntime.

--export FILE writes it as ONNX, with random weights. Otherwise prints samples per second of forwards of --samples source and
target sequences of --length positions, the median of --repeats of them, behind two that do not count.
"""

import argparse
import json
import os
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def network():
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.T5Config(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, dropout_rate=0.0,
                                   use_cache=False)
    model = transformers.T5ForConditionalGeneration(config).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, source, target):
            return self.model(input_ids=source, decoder_input_ids=target).logits

    return Logits().eval()


def tokens(arguments: argparse.Namespace):
    import torch

    return tuple(torch.randint(0, 32128, (arguments.samples, arguments.length)) for _ in range(2))


def forward_of(arguments: argparse.Namespace):
    source, target = tokens(arguments)
    if arguments.engine == "torch":
        import torch

        torch.set_num_threads(arguments.threads)
        model = network()
        return lambda: model(source, target)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = arguments.threads, 1
    session = onnxruntime.InferenceSession(arguments.model, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    feeds = dict(zip(names, (source.numpy(), target.numpy())))
    return lambda: session.run(None, feeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", metavar="FILE")
    parser.add_argument("--engine", choices=["torch", "onnxruntime"], default="torch")
    parser.add_argument("--model", metavar="FILE", help="that --export wrote")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    import torch

    with torch.no_grad():
        if arguments.export:
            torch.onnx.export(network(), tokens(arguments), arguments.export, input_names=["source", "target"], dynamo=True)
            return
        forward = forward_of(arguments)
        seconds = []
        for _ in range(arguments.repeats + 2):
            begin = time.perf_counter()
            forward()
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"samples_per_s": arguments.samples / statistics.median(seconds[2:])}))


if __name__ == "__main__":
    main()
