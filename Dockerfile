# Stash with PyTorch and the models of its zoo:
#   docker build -t stash .
#   docker run --rm --shm-size=2g -v "$PWD:/work" stash profile train.py
# For a job of your own start from its image instead, and install Stash beside its PyTorch: `pip install /stash`.
FROM python:3.12-slim

WORKDIR /stash
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir torch '.[zoo]'

WORKDIR /work
ENTRYPOINT ["stash"]
