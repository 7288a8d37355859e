# docker build -t madbench . && docker run -v "$PWD/results:/work/results" madbench run G-cg-q-12o
# The mounted folder has to be writable for user 1000. For an NVIDIA GPU: --build-arg TORCH_INDEX=https://pypi.org/simple
# when it is built, --gpus all when it runs.
FROM python:3.11-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY . .
RUN python -m venv /opt/madbench
RUN /opt/madbench/bin/pip install --no-cache-dir -c constraints.txt --extra-index-url "$TORCH_INDEX" .
RUN install -d -o 1000 -g 1000 /work /work/results

FROM python:3.11-slim
COPY --from=build /opt/madbench /opt/madbench
COPY --from=build --chown=1000:1000 /work /work
# A number needs no entry in /etc/passwd; the name is what libraries ask for.
USER 1000:1000
ENV HOME=/work USER=madbench
WORKDIR /work
ENTRYPOINT ["/opt/madbench/bin/madbench"]
