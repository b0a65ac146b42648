# The server of compose.yaml: Python, this package, and of Docker nothing but the socket that it is given.
ARG BASE=python:3.13-slim
FROM ${BASE}
COPY . /source
RUN python3 -m venv /opt/sandbox-kernel && \
    /opt/sandbox-kernel/bin/pip install --no-cache-dir '/source[serve]' && \
    rm -r /source
ENV PATH=/opt/sandbox-kernel/bin:$PATH
CMD ["sandbox-kernel", "serve"]
