// The images of one episode. A moment is drawn when all its views are there, so that what is shown is always one frame.

const AHEAD = 24, KEPT = 60;  // moments that are fetched ahead, and that are kept

export class Video {
  // `canvases`: one a view; `told(frame)` is called when a frame is shown, `failed(frame)` when one cannot be.
  constructor(episode, length, canvases, told, failed) {
    Object.assign(this, { episode, length, canvases, told, failed, wanted: 0, shown: -1, ahead: 1 });
    this.images = new Map();  // "view/frame" -> promise of an image, latest last
    this.drawing = this.closed = false;
  }

  async seek(frame) {
    if (frame !== this.wanted) this.ahead = frame < this.wanted ? -1 : 1;
    this.wanted = frame;
    if (this.drawing) return;
    this.drawing = true;
    try {
      while (this.shown !== this.wanted && !this.closed) {
        const due = this.wanted, images = await this.moment(due);
        if (this.closed) return;
        images.forEach((image, view) => this.draw(image, this.canvases[view]));
        this.shown = due;
        this.told(due);
      }
    } catch {
      if (!this.closed) this.failed(this.wanted);
      return;
    } finally { this.drawing = false; }
    this.prefetch();
  }

  draw(image, canvas) {
    const { naturalWidth: width, naturalHeight: height } = image;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.getContext("2d").drawImage(image, 0, 0);
  }

  async prefetch() {
    const from = this.wanted;
    for (let k = 1; k <= AHEAD; k++) {
      const frame = from + k * this.ahead;
      if (Math.abs(this.wanted - from) > AHEAD || this.closed || frame < 0 || frame >= this.length) return;
      try { await this.moment(frame); } catch { return; }
    }
  }

  moment(frame) { return Promise.all(this.canvases.map((_, view) => this.image(view, frame))); }

  image(view, frame) {
    const key = `${view}/${frame}`, known = this.images.get(key);
    this.images.delete(key);
    const promise = known ?? this.fetched(key);
    this.images.set(key, promise);
    if (this.images.size > KEPT * this.canvases.length) this.images.delete(this.images.keys().next().value);
    return promise;
  }

  fetched(key) {
    const image = new Image();
    image.src = `frames/${this.episode}/${key}`;
    const promise = image.decode().then(() => image);
    promise.catch(() => this.images.delete(key));
    return promise;
  }
}
