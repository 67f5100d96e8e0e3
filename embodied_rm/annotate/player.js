// Displays the frames of one episode, or of a part of it. A frame is drawn when the images of all its views are loaded, so that the views
// always display the same frame.

const PREFETCH_FRAMES = 24, MAX_CACHED_FRAMES = 60;

export class VideoPlayer {
  // `canvases`: one per view. `onFrame(frame)` is called after a frame is drawn, `onError(frame)` if it cannot be loaded.
  // `start`: the frame of the episode that is frame 0 here.
  constructor(episode, length, canvases, onFrame, onError, start = 0) {
    Object.assign(this, { episode, length, canvases, onFrame, onError, start, target: 0, displayed: -1, direction: 1 });
    this.images = new Map();  // "view/frame" -> promise of an image, least recently used first
    this.drawing = this.closed = false;
  }

  async seek(frame) {
    if (frame !== this.target) this.direction = frame < this.target ? -1 : 1;
    this.target = frame;
    if (this.drawing) return;
    this.drawing = true;
    try {
      while (this.displayed !== this.target && !this.closed) {
        const frame = this.target, images = await this.loadFrame(frame);
        if (this.closed) return;
        images.forEach((image, view) => this.draw(image, this.canvases[view]));
        this.displayed = frame;
        this.onFrame(frame);
      }
    } catch {
      if (!this.closed) this.onError(this.target);
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
    const from = this.target;
    for (let k = 1; k <= PREFETCH_FRAMES; k++) {
      const frame = from + k * this.direction;
      if (Math.abs(this.target - from) > PREFETCH_FRAMES || this.closed || frame < 0 || frame >= this.length) return;
      try { await this.loadFrame(frame); } catch { return; }
    }
  }

  loadFrame(frame) { return Promise.all(this.canvases.map((_, view) => this.loadImage(view, frame))); }

  loadImage(view, frame) {
    const key = `${view}/${this.start + frame}`, cached = this.images.get(key);
    this.images.delete(key);
    const promise = cached ?? this.fetchImage(key);
    this.images.set(key, promise);
    if (this.images.size > MAX_CACHED_FRAMES * this.canvases.length) this.images.delete(this.images.keys().next().value);
    return promise;
  }

  fetchImage(key) {
    const image = new Image();
    image.src = `frames/${this.episode}/${key}`;
    const promise = image.decode().then(() => image);
    promise.catch(() => this.images.delete(key));
    return promise;
  }
}
