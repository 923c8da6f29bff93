# evenhand with every reader and engine but Spark: docker build -t evenhand . && docker run --rm -v "$PWD:/work" evenhand audit --help
FROM python:3.12-slim AS build
COPY . /src
RUN python -m pip install --no-cache-dir build && python -m build --wheel --outdir /dist /src

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    python -m pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
      "$(ls /dist/*.whl)[excel,readers,trees,onnx,skops,pmml,dask,word]" xgboost-cpu lightgbm \
    && useradd --create-home auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["evenhand"]
CMD ["--help"]
