# evenhand with every extra but Spark: docker build -t evenhand . && docker run --rm -v "$PWD:/work" evenhand audit --help
# Files in /work are written as user 1000; add --user "$(id -u)" if you are someone else.
FROM python:3.12-slim AS build
COPY . /src
RUN python -m pip install --no-cache-dir build && python -m build --wheel --outdir /dist /src

FROM python:3.12-slim
# LightGBM links to the system's libgomp.
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && python -m pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
      "$(ls /dist/*.whl)[all]" xgboost-cpu lightgbm catboost \
    && useradd --create-home --uid 1000 auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["evenhand"]
CMD ["--help"]
