# docker build -t pp:cpu -f configs/jobs/cpu.Dockerfile .
# The three tools and what mpirun needs between machines, on CPUs. Without a command it is a worker that waits for mpirun.
FROM debian:12-slim
# ssh is how mpirun reaches the workers: keys come from the MPI operator, or from a volume on ~/.ssh.
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client openssh-server && \
    mkdir -p /run/sshd && \
    printf 'PermitRootLogin prohibit-password\nStrictModes no\n' > /etc/ssh/sshd_config.d/pp.conf && \
    printf 'Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n' > /etc/ssh/ssh_config.d/pp.conf
COPY . /opt/pp
ENV PP_CACHE=/opt/pp-cache PATH=/opt/pp/build/release/bin:$PATH
RUN cd /opt/pp && scripts/setup --cpu && cmake --preset release && \
    cmake --build --preset release --target pp-profile pp-plan pp-run
CMD ["/usr/sbin/sshd", "-De"]
