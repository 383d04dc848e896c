# syntax=docker/dockerfile:1
# The package is built in one stage and run in another, which has no compiler, no pip cache and no source.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/holdfast
# What it needs first: this layer stays as long as the dependencies do.
COPY pyproject.toml README.md LICENSE ./
COPY src/holdfast/__init__.py src/holdfast/__init__.py
RUN /opt/holdfast/bin/pip install '.[fast]'
COPY src src
COPY examples examples
RUN /opt/holdfast/bin/pip install --no-deps --force-reinstall . \
 && /opt/holdfast/bin/python -m compileall -q /opt/holdfast/lib \
 && /opt/holdfast/bin/holdfast --version

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="Holdfast" \
      org.opencontainers.image.description="A Kubernetes scheduler that reserves capacity" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["holdfast"]
CMD ["run"]
