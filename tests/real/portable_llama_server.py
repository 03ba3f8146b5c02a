"""llama.cpp's HTTP server as ``xllamacpp`` builds it: for any x86-64, where the faster build does not run.

Usage: python portable_llama_server.py MODEL.gguf PORT PARALLEL CONTEXT_TOKENS
"""

import sys
import threading

import xllamacpp


def main() -> None:
    model, port, parallel, context_tokens = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_parallel = int(parallel)
    params.n_ctx = int(context_tokens)
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
